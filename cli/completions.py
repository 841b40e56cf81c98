"""What Tab offers for values: models on disk and saved chats. Reads names, no weights and no conversations."""

from __future__ import annotations

_MOST = 200


def model_names(incomplete: str) -> list[str]:
    """Models on this machine and the user's aliases that begin so."""
    from ..engine.aliases import EMBEDDED
    from ..engine.models import on_disk
    from ..engine.user_aliases import user_aliases

    names = dict.fromkeys([*user_aliases(), *(folder.name for folder in on_disk()), *EMBEDDED])
    wanted = incomplete.lower()
    return [name for name in names if name.lower().startswith(wanted)][:_MOST]


def session_ids(incomplete: str) -> list[str]:
    """Ids of saved chats that begin so, the one used last first."""
    from ..transcripts.session_store import SessionStore

    return [path.stem for path in SessionStore().paths() if path.stem.startswith(incomplete)][:_MOST]
