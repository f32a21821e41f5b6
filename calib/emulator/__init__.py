"""A serving engine with known pipeline physics, in virtual time or over HTTP on loopback.

The next best thing to silicon where there is none: continuous batching over ``pp`` stages whose times come from the same
layout that calib explains them with (`calib.stages`), and a scheduling overhead that is a stated truth (`calib.emulator.law`).
What calib then finds can be held against that truth. It says nothing about any real engine.
"""
