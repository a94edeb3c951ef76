"""Where images come from: one module a kind of source, all of which list rows of `etl.sources.entries`.

`plan` says what to read, `listing` finds it: trees, tars, shards and tables of bytes, with files of labels and with the
masks and arrays that accompany images.
"""
