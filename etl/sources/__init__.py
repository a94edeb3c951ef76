"""Sources of images: one module for each kind of source. All list rows of `etl.sources.entries`.

`plan` has the options and `listing` lists the source: trees, tars, shards and tables of bytes, with label files, masks
and arrays.
"""
