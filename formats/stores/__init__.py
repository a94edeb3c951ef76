"""Local disks and object stores, and requests to them."""
