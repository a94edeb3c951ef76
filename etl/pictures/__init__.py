"""What a picture is: its header, its pixels, what can be made of it, and what it looks like."""
