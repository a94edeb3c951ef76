"""Shared by tests: services, servers, images, trees, split folders."""
