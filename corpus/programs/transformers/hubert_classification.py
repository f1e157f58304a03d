"""HuBERT classifies audio clips with a weighted sum of its layers; batches of clips of several lengths."""
# corpus: mode=inference needs=transformers

import torch
from transformers import HubertConfig, HubertForSequenceClassification

torch.manual_seed(46)
config = HubertConfig(
    vocab_size=20,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    conv_dim=(16, 16, 16),
    conv_kernel=(10, 3, 3),
    conv_stride=(5, 4, 4),
    conv_bias=True,
    feat_extract_norm="layer",
    do_stable_layer_norm=True,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=4,
    use_weighted_layer_sum=True,
    classifier_proj_size=32,
    num_labels=6,
)
model = HubertForSequenceClassification(config).eval()
classify = torch.compile(model, dynamic=False)
print("HuBERT with", config.num_labels, "classes")

lengths = [1600, 2400, 1600, 3200, 2400, 1600, 3200, 2400]
for clip, length in enumerate(lengths):
    wave = torch.randn(2, length)
    wave = (wave - wave.mean(-1, keepdim=True)) / wave.std(-1, keepdim=True)
    with torch.no_grad():
        present = torch.ones(2, length, dtype=torch.long)
        scores = classify(input_values=wave, attention_mask=present).logits.softmax(-1)
    best, where = scores.max(-1)
    shares = ", ".join(f"{share:.4g}" for share in best.tolist())
    print(f"clip {clip}: {length} samples, class {where.tolist()}, {shares}")
