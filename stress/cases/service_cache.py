# SPDX-License-Identifier: Apache-2.0
"""A service that remembers results by prompt, and forgets none."""
import berm.torch
import service
import torch


class Embedder:
    def __init__(self, model):
        self.model, self.known = model, {}

    def embed(self, prompt, request):
        if prompt not in self.known:
            self.known[prompt] = self.model(request)  # the mistake: no bound
        return self.known[prompt]


embedder = Embedder(service.model())
watch = berm.torch.watch()
for number, each in enumerate(service.requests()):
    with watch, torch.inference_mode():
        embedder.embed(f"prompt {number}", each)
service.tell(watch)
