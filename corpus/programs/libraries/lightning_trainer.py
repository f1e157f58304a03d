"""Train a LightningModule with the Trainer: parts compiled in configure_model, validation, clipping."""
# corpus: mode=training needs=lightning

import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Autoencoder(L.LightningModule):
    def __init__(self, width, lr):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(24, width), nn.ReLU(), nn.Linear(width, 3))
        self.decoder = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 24))

    def configure_model(self):
        self.encoder.compile()
        self.decoder.compile()

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_index):
        (x,) = batch
        loss = F.mse_loss(self(x), x)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_index):
        (x,) = batch
        self.log("validation", F.l1_loss(self(x), x), on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class PrintEpochs(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        values = {name: value.item() for name, value in trainer.callback_metrics.items()}
        print(
            f"epoch {trainer.current_epoch}: loss {values['loss']:.4g}, validation {values['validation']:.4g}"
        )


def main():
    L.seed_everything(0, verbose=False)
    data = torch.randn(64, 4) @ torch.randn(4, 24)
    loader = DataLoader(TensorDataset(data[:48]), batch_size=16, shuffle=True)
    held_out = DataLoader(TensorDataset(data[48:]), batch_size=16)
    trainer = L.Trainer(
        max_epochs=8,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[PrintEpochs()],
    )
    model = Autoencoder(width=32, lr=5e-3)
    print("training for", trainer.max_epochs, "epochs")
    trainer.fit(model, loader, held_out)


if __name__ == "__main__":
    main()
