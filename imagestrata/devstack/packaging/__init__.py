"""What concerns imagestrata as a package: its wheel, its lowest dependencies, and the inventory of what it installs."""
