"""Every graph is verified after every pass in all tests."""

from tenon import pipeline

pipeline.always_check = True
