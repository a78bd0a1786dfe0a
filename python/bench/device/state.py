"""A model with Adam on a device, as a training has it: the weights and both moments in float32."""

import math

import torch

LAYERS = 20
WIDTH_MAX = 4096


class TrainingState:
    """About so many bytes. `tree`: what is saved. `tensors`: all of it, flat, in the order of every such state."""

    def __init__(self, accelerator, size):
        self._accelerator = accelerator
        width = max(min(int(math.sqrt(size / 12 / LAYERS)) // 64 * 64, WIDTH_MAX), 64)
        layers = max(round(size / 12 / width**2), 1)
        self.model = torch.nn.Sequential(*(torch.nn.utils.skip_init(torch.nn.Linear, width, width, bias=False)
                                           for _ in range(layers))).to(accelerator.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        for parameter in self.model.parameters():
            parameter.detach().copy_(accelerator.random(width, width))
            self.optimizer.state[parameter] = {
                "step": torch.tensor(1.0), "exp_avg": accelerator.random(width, width),
                "exp_avg_sq": accelerator.random(width, width)}
        self.tree = {"model": self.model, "optimizer": self.optimizer}

    # Looked up anew, since a restore gives an optimizer other tensors.
    @property
    def _fields(self):
        return [self.optimizer.state[parameter] for parameter in self.model.parameters()]

    @property
    def on_device(self):
        return [*(weight.detach() for weight in self.model.parameters()),
                *(field[name] for field in self._fields for name in ("exp_avg", "exp_avg_sq"))]

    @property
    def _steps(self):
        return [field["step"] for field in self._fields]

    @property
    def bytes(self):
        return sum(tensor.numel() * tensor.element_size() for tensor in self._all())

    def dicts(self):
        """For libraries that take nested dicts of tensors."""
        return {"model": dict(self.model.state_dict()),
                "optimizer": {str(i): dict(self.optimizer.state[parameter])
                              for i, parameter in enumerate(self.model.parameters())}}

    def fill_from(self, dicts):
        """Copies what dicts() of another state gave into the tensors of this one."""
        own = self.dicts()
        for part in own:
            for key, value in own[part].items():
                pairs = [(value, dicts[part][key])] if torch.is_tensor(value) else [
                    (tensor, dicts[part][key][name]) for name, tensor in value.items()]
                for target, source in pairs:
                    target.detach().copy_(source)

    def change(self, number):
        for tensor in self.on_device:
            self._accelerator.change(tensor, number)
        for step in self._steps:
            step.fill_(number)

    def clear(self):
        for tensor in self.on_device:
            self._accelerator.fill(tensor, 0)
        for step in self._steps:
            step.fill_(-1)

    def copies(self):
        return [torch.empty_like(tensor) for tensor in self._all()]

    def keep(self, copies):
        for tensor, copy in zip(self._all(), copies):
            copy.copy_(tensor)

    def differing(self, copies):
        """How many tensors are not what the copies are, bit for bit but for the sign of a zero."""
        return sum(not (self._accelerator.equal(tensor, copy) if copy.device.type != "cpu" else torch.equal(tensor, copy))
                   for tensor, copy in zip(self._all(), copies))

    def _all(self):
        return [*self.on_device, *self._steps]
