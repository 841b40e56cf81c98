"""Load a model in a process of its own that counts the sockets it opens."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import sys
    opened = []
    def hook(name, arguments):
        if name.startswith("socket.") and name not in ("socket.gethostname",):
            opened.append((name, arguments))
    sys.addaudithook(hook)
    if {plant}:
        import socket
        socket.socket().close()
    from mlxchat.engine import loader, models
    folder = models.resolve({name!r})
    model = loader.load(folder)
    assert model.tokenizer.apply_chat_template([{{"role": "user", "content": "hello"}}], add_generation_prompt=True)
    print(len(opened), *opened[:3])
"""


def load_in_a_process(name: str, plant: bool = False) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(PROGRAM).format(name=name, plant=plant)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
