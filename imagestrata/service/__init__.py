"""The REST dataset service: datasets by name, in versions that never change, over a folder or a bucket.

::

    request --> app (authentication, routes) --> uploads (a body is received into a staging folder)
                  |                                 |  checked, indexed, described by a card
                  v                                 v
              downloads (ranges, conditions)  <--  store (versions; one rename makes a version visible)
"""
