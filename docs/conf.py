"""Sphinx: `make docs` builds these pages into build/docs, offline, with warnings as errors."""

import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# `command_lines` and `sizing` are here; the training scripts are not installed.
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

project = "imagestrata"
author = "The authors of imagestrata"
copyright = author
release = metadata.version("imagestrata")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_lines",
    "sizing",
    "sphinx_copybutton",
]
needs_sphinx = "9.0"
exclude_patterns = ["_*"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

smartquotes = False  # options begin with two hyphens

html_theme = "furo"
html_title = f"imagestrata {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# A name in single backquotes in a docstring is a link if it is documented here.
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the descriptions have dtypes and shapes
napoleon_use_rtype = False
# Public names of ours must be documented; all else that docstrings name is internal or of other packages.
nitpick_ignore_regex = [(r"py:.*", r"(?!(loader|loader\.shards|loader\.lightning|imagestrata\.hub)\.\w+$).*")]
# An error's name that `loader` and `imagestrata.hub` both have: a bare one is linked to the first.
suppress_warnings = ["ref.python"]
