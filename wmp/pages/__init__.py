"""Pages in HTML and pictures in SVG, for the reports of the kit and of the pipeline.

All markup is in the templates (Jinja2) of ``templates``, which escape every value.
:mod:`wmp.pages.template` renders a template, :mod:`wmp.pages.svg` draws shapes, and
:mod:`wmp.pages.sequence` draws sequence diagrams. These modules need ``jinja2``, which the extras
``conformance`` and ``spark`` install.
"""
