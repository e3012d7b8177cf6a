"""The start of a script that watches its own anonymous memory, for a process of its own."""

WATCH = """
import json, re, sys, threading
from pathlib import Path
import torch, torchvision.transforms.v2 as v2
import gpupreload as gp

def anonymous():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

class Watch(threading.Thread):
    def __enter__(self):
        self.peak, self.done = anonymous(), threading.Event()
        self.start()
        return self
    def run(self):
        while not self.done.wait(0.002):
            self.peak = max(self.peak, anonymous())
    def __exit__(self, *error):
        self.done.set()
        self.join()
        self.peak = max(self.peak, anonymous())
"""
