"""How a report looks."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root{--ink:#1c2733;--dim:#64748b;--faint:#e2e8f0;--paper:#fff;--sheet:#f6f8fb;--blue:#2563eb;
--teal:#0d9488;--violet:#7c3aed;--good:#15803d;--bad:#dc2626;--unsure:#b45309;
color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--ink:#e2e8f0;--dim:#94a3b8;--faint:#334155;
--paper:#0f172a;--sheet:#1e293b;--blue:#60a5fa;--teal:#2dd4bf;--violet:#a78bfa;--good:#4ade80;--bad:#f87171;
--unsure:#fbbf24}}
*{box-sizing:border-box}
body{margin:0;background:var(--sheet);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
header,section{background:var(--paper);border:1px solid var(--faint);border-radius:12px;
padding:22px 28px;margin-bottom:18px;overflow-x:auto}
h1{margin:2px 0 0;font-size:34px;letter-spacing:-.02em}h1.good{color:var(--good)}
h1.bad{color:var(--bad)}h1.unsure,h1.none{color:var(--unsure)}
h2{margin:0 0 4px;font-size:19px;letter-spacing:-.01em}h3{font-size:15px;margin:10px 0 4px}
.of,.more,.says,.note,small{color:var(--dim);margin:0}.more{margin-bottom:18px}
.says{margin-bottom:12px;max-width:52em}.note{margin-top:8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px}
.tile{background:var(--sheet);border-radius:10px;padding:12px 14px;display:flex;
flex-direction:column}
.tile b{font-size:25px;line-height:1.2;letter-spacing:-.02em;white-space:nowrap}
.tile small{font-size:12px}
.cards{display:flex;flex-wrap:wrap;gap:0 18px}.cards section{flex:1 1 auto}
.gaps{border-left:4px solid var(--unsure)}.beside{display:flex;flex-wrap:wrap;gap:12px 40px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--dim);text-align:left;font-size:13px}
th,td{padding:4px 26px 4px 0;border-bottom:1px solid var(--faint);vertical-align:top}
.n{text-align:right}tbody tr:last-child td{border-bottom:0}
.meter{display:inline-block;width:150px;height:9px;border-radius:5px;background:var(--faint);
margin-right:9px;overflow:hidden}.meter i{display:block;height:100%;background:var(--blue)}
details.violation{margin-top:14px;border-top:1px solid var(--faint);padding-top:10px}
summary{cursor:pointer}summary b{color:var(--bad)}summary small{display:block;margin-left:18px}
pre,code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px}
pre{background:var(--sheet);padding:12px;border-radius:8px;overflow-x:auto}
ul.tables{columns:2;padding-left:18px}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--ink)}
svg .small{font-size:11px;fill:var(--dim)}svg .name{font-size:12.5px}svg .value{font-size:12px}
.grid{stroke:var(--faint);stroke-width:1}.base{stroke:var(--faint)}
.life{fill-opacity:.28}.manager{fill:var(--violet)}.device{fill:var(--teal)}.worker{fill:var(--dim)}
.busy{fill:var(--blue)}svg .cross{fill:var(--bad);font-weight:700;font-size:14px}
.flag{fill:var(--bad)}.empty{fill:var(--sheet)}.heat{fill:var(--blue)}.bad{fill:var(--bad)}
.came{stroke:var(--violet);stroke-width:2}
.bar{fill:var(--blue);fill-opacity:.75}.median{stroke:var(--ink);stroke-width:1.2}
.slow{stroke:var(--bad);stroke-width:1.2}
.figures{display:flex;flex-wrap:wrap;gap:10px 30px}.figures svg{min-width:320px}
figure{margin:0;flex:1 1 460px;max-width:530px}figcaption{font-weight:500;font-size:13px}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px}
.key::before{content:"";display:inline-block;width:14px;height:3px;border-radius:2px;
background:currentColor;margin-right:6px;vertical-align:middle}
.c0{stroke:#2563eb;color:#2563eb}.c1{stroke:#0d9488;color:#0d9488}.c2{stroke:#d97706;color:#d97706}
.c3{stroke:#db2777;color:#db2777}.c4{stroke:#7c3aed;color:#7c3aed}.c5{stroke:#65a30d;color:#65a30d}
.c6{stroke:#64748b;color:#64748b}.c7{stroke:#dc2626;color:#dc2626}
.life-line{stroke:var(--dim);stroke-dasharray:3 3}.arrow{stroke:var(--ink);stroke-width:1.3}
.tip{fill:var(--ink)}.faint{stroke:var(--dim);stroke-dasharray:2 3}.dot{fill:var(--blue)}
svg .head{font-weight:600;font-size:13px}svg .said{font-size:11.5px}svg .broken{font-weight:700}
.broke{fill:var(--bad);fill-opacity:.14}
@media print{body{background:#fff}section,header{break-inside:avoid}}
"""
