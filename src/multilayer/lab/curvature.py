"""Curvature of the training loss of a network: gradient and Hessian as functions of all parameters in one vector.

    place = Surface(network, task)
    place.weights                  # (P,), the tensors of the network one after another
    place.loss(w), place.gradient(w)
    place.sharpness()              # the largest eigenvalue of the Hessian at the weights
    place.hessian(w)               # (P, P), for small networks

The Hessian times a vector v is computed as (g(w + εv) − g(w − εv)) / 2ε, where g is the gradient. The method of Lanczos
computes the largest eigenvalue from such products. It is more accurate than power iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics.curvature import gradient_of
from ..nn import losses
from .training import Network, Task

Floats = NDArray[np.float64]
DIFFERENCE = 1e-5
"""Length of the step for the difference of two gradients."""
ACCURACY = 1e-3
"""Relative accuracy of the largest eigenvalue."""


class Surface:
    """The mean loss of a network over the rows of a task, as a function of all its parameters.

    >>> task = Task(x=np.eye(2), y=np.array([0.0, 1.0]))
    >>> surface = Surface(Network.initial("2-1"), task)
    >>> surface.hessian(surface.weights).round(6).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]]
    >>> round(surface.sharpness(), 3)
    3.0
    """

    def __init__(self, network: Network, task: Task) -> None:
        self.network, self.task = network, task
        self.gradient = gradient_of(
            network.spec, network.tensors, task.x, None, task.targets, losses.get(task.loss)
        )  # (P,) → (P,)
        self.weights: Floats = flat(network)

    def at(self, weights: Floats) -> Network:
        """Return the network with these weights."""
        return with_weights(self.network, weights)

    def loss(self, weights: Floats) -> float:
        """Return the mean loss."""
        return self.at(weights).loss(self.task)

    def product(self, weights: Floats, v: Floats) -> Floats:
        """Return the Hessian times v."""
        size = float(np.linalg.norm(v))
        if size == 0:
            return np.zeros_like(v)
        step = DIFFERENCE / size
        return (self.gradient(weights + step * v) - self.gradient(weights - step * v)) / (2 * step)

    def hessian(self, weights: Floats) -> Floats:
        """Return the whole Hessian (P, P), with two gradients per parameter."""
        found = np.stack([self.product(weights, v) for v in np.eye(len(weights))])
        return (found + found.T) / 2

    def eigenvalues(self, weights: Floats) -> Floats:
        """Return all eigenvalues of the Hessian, in increasing order."""
        return np.asarray(np.linalg.eigvalsh(self.hessian(weights)), np.float64)

    def sharpness(self) -> float:
        """Return the largest eigenvalue of the Hessian. It is infinite if the loss is not finite."""
        from scipy.sparse import linalg

        size = len(self.weights)
        if not np.isfinite(self.loss(self.weights)):
            return np.inf
        if size < 4:
            return float(self.eigenvalues(self.weights)[-1])
        lanczos: Any = linalg  # its type stubs know neither `matvec` nor a tolerance below 1
        operator = lanczos.LinearOperator(
            (size, size), matvec=lambda v: self.product(self.weights, np.ravel(v)), dtype=np.float64
        )
        start = np.random.default_rng(0).normal(size=size)
        found = lanczos.eigsh(operator, k=1, which="LA", tol=ACCURACY, v0=start, return_eigenvectors=False)
        return float(found[0])


def flat(network: Network) -> Floats:
    """Return all parameters of a network as one vector."""
    return np.concatenate([network.tensors[name].ravel() for name in network.spec.parameters])


def with_weights(network: Network, weights: Floats) -> Network:
    """Return a network with the parameters of a vector."""
    tensors, first = dict(network.tensors), 0
    for name, parameter in network.spec.parameters.items():
        tensors[name] = weights[first : first + parameter.size].reshape(parameter.shape)
        first += parameter.size
    return Network(network.spec, tensors)
