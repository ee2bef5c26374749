"""Pages in HTML and pictures in SVG: what the kit's and the pipeline's reports are drawn with.

All markup is in the templates (Jinja2) of ``templates``, which escape every value.
:mod:`wmp.pages.template` renders a template, :mod:`wmp.pages.svg` draws shapes, and
:mod:`wmp.pages.sequence` draws sequence diagrams. Needs ``jinja2``, which the extras
``conformance`` and ``spark`` install.
"""
