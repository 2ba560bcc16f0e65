"""The page's style: readable at 1366 pixels, light or dark as the reader's system is."""

from __future__ import annotations

HUES = (212, 28, 152, 338, 266, 48, 188, 8, 96, 300)
"""Hues of lines, neighbours far apart."""

STYLE = (
    """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5b6675;
  --rule: #dfe3e8; --compute: #b9c3d0; --wait: #e8a33d; --transfer: #2f7fd1; --heat: #d6453d;
  --hot: #fdf1dc; --chip: #eef1f5; --good: #2e9e63; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --card: #1a2028; --ink: #e4e9f0; --soft: #93a0b1; --rule: #2c3541;
    --compute: #4b5867; --wait: #e0a045; --transfer: #5aa5ee; --heat: #f0655c; --hot: #3a2f1a;
    --chip: #232b36; --good: #4cc084; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 36px 0 4px; }
h3 { font-size: 15px; margin: 0 0 2px; } p { margin: 0 0 8px; } .soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 14px 18px 12px; margin: 12px 0; overflow-x: auto; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 8px; }
.facts div { background: var(--chip); border-radius: 6px; padding: 7px 11px; min-width: 0;
  overflow-wrap: anywhere; }
.facts b { display: block; font-size: 16px; font-weight: 600; }
.facts span { color: var(--soft); font-size: 12px; }
svg { display: block; width: 100%; height: auto; margin-top: 6px; }
svg text { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; }
.compute { fill: var(--compute); } .wait { fill: var(--wait); } .transfer { fill: var(--transfer); }
circle.wait, circle.transfer { fill-opacity: .75; }
.heat { fill: var(--heat); } .heatback { fill: var(--chip); }
path { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
path.many { stroke: var(--transfer); stroke-opacity: .35; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12.5px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  margin-right: 5px; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 12.5px; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; } td.n, th.n { text-align: right; white-space: nowrap; }
tr.hot td { background: var(--hot); } details summary { cursor: pointer; color: var(--soft); }
code { font-size: 12.5px; background: var(--chip); border-radius: 4px; padding: 1px 4px; }
section.verdict { border-left: 6px solid var(--heat); padding: 18px 22px 16px; }
section.quiet { border-left: 6px solid var(--good); padding: 18px 22px 12px; }
.verdict h2, .quiet h2 { margin: 0 0 8px; font-size: 20px; line-height: 1.35; }
.verdict h3 { margin: 20px 0 2px; }
.chips { display: flex; flex-wrap: wrap; gap: 6px; margin: 0 0 8px; align-items: center; }
.chips b, .chips span { border-radius: 12px; padding: 2px 11px; background: var(--chip); }
.chips b { background: var(--heat); color: #ffffff; font-weight: 600; }
.do { background: var(--hot); border-radius: 6px; padding: 10px 14px; margin: 12px 0 4px; }
.do code { background: none; padding: 0; font-weight: 600; }
.failed { color: var(--heat); }
.shade { fill: var(--heat); fill-opacity: .09; }
.culprit { fill: var(--heat); } .peer { fill: var(--compute); }
path.culprit { fill: none; stroke: var(--heat); stroke-width: 2; }
path.peer { fill: none; stroke: var(--compute); stroke-opacity: .7; }
"""
    + "".join(
        f"path.l{place} {{ stroke: hsl({hue} 62% 50%); }}\n"
        f".b{place} {{ background: hsl({hue} 62% 50%); }}\n"
        for place, hue in enumerate(HUES)
    )
    + ".bcompute { background: var(--compute); } .bwait { background: var(--wait); }"
    " .btransfer { background: var(--transfer); } .bheat { background: var(--heat); }"
    " .bculprit { background: var(--heat); } .bpeer { background: var(--compute); }"
)
