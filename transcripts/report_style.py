"""The report's style: light, dark and print, system fonts only."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #5b6675; --line: #d9dee6; --page: #ffffff; --card: #f5f7fa;
  --a: #2f6fdb; --b: #12a594; --c: #e08a1e; --off: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --dim: #9aa5b4; --line: #343d4a; --page: #14181f;
  --card: #1c222b; --a: #6ea2ff; --b: #3fd0bd; --c: #f0ad55; --off: #ff8a7a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 34px 0 6px; }
h2 small, .sub, .tile p, .keys { color: var(--dim); font-weight: normal; }
.sub { margin: 2px 0 18px; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 10px; margin: 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.tile dt { color: var(--dim); font-size: 13px; }
.tile dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile p { margin: 0; font-size: 12px; }
.keys { margin: 0 0 4px; font-size: 13px; }
.key::before { content: ""; display: inline-block; width: 10px; height: 10px; margin: 0 5px 0 0; border-radius: 2px; }
.key + .key { margin-left: 16px; }
.key.a::before { background: var(--a); } .key.b::before { background: var(--b); }
.key.c::before { background: var(--c); } .key.d::before { background: var(--line); }
svg { width: 100%; height: auto; display: block; }
rect.a { fill: var(--a); } rect.b { fill: var(--b); } rect.c { fill: var(--c); } rect.d { fill: var(--line); }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--dim); font-size: 11px; font-family: system-ui, sans-serif; }
.end { text-anchor: end; } .mid { text-anchor: middle; }
ol { padding-left: 22px; } li { margin: 0 0 6px; overflow-wrap: anywhere; }
li em { color: var(--dim); font-style: normal; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: 4px 8px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
th:nth-child(2), td:nth-child(2), th:nth-child(n+16), td:nth-child(n+16) { text-align: left; }
td:nth-child(2) { max-width: 220px; overflow: hidden; text-overflow: ellipsis; }
.off { color: var(--off); text-align: left; }
@media print { :root { --ink: #000; --dim: #444; --line: #bbb; --page: #fff; --card: #fff; --a: #2f6fdb; --b: #12a594;
  --c: #e08a1e; --off: #b42318; }
  body { font-size: 11px; } main { max-width: none; padding: 0; } section, .tile { break-inside: avoid; }
  section:last-child { break-inside: auto; } .wide { overflow: visible; }
  table { font-size: 7.5px; } th, td { padding: 2px 3px; } * { print-color-adjust: exact; } }
"""
