"""Graph -> Graph, one verb a file.  Nothing is registered here: `tenon.pipeline` lists the passes in order."""
