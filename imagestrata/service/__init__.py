"""The REST dataset service: datasets by name, in versions that never change, over a folder or a bucket.

::

    request --> app (who asks, what is wanted) --> uploads (a body on its way into a folder of its own)
                  |                                   |  checked, indexed, told on a card
                  v                                   v
              downloads (ranges, conditions)  <--  store (versions; one rename makes one visible)
"""
