"""What passes are written with: rules, and graphs inside of nodes."""
