"""The models that a study can name: settings that build ordinary torch modules."""

from fedpareto.federation.models.base import Model
from fedpareto.federation.models.cnn import Cnn
from fedpareto.federation.models.lenet import Lenet, Lenet5
from fedpareto.federation.models.lr import Lr
from fedpareto.federation.models.mlp import Mlp
from fedpareto.federation.models.own import Own
from fedpareto.federation.models.residual import Resnet18, Vgg

MODELS: dict[str, type[Model]] = {
    "cnn": Cnn,
    "lenet": Lenet,
    "lenet5": Lenet5,
    "lr": Lr,
    "mlp": Mlp,
    "resnet18": Resnet18,
    "vgg": Vgg,
}

__all__ = ["MODELS", "Cnn", "Lenet", "Lenet5", "Lr", "Mlp", "Model", "Own", "Resnet18", "Vgg"]
