"""What tests share: services, servers, pictures, trees, split folders."""
