"""A captured function as one offline page: data in Python, drawing in plain JavaScript, joined when it is written."""
