"""Labels of images: label files, and what labels of any source mean."""
