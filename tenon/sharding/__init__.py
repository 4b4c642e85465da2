"""Values over the devices of a mesh: meshes, shardings, how they propagate, and one graph a device."""
