"""Programs that show the whole path: `tenon demo NAME`."""
