"""Where files are: local disks and object stores, and the requests to them."""
