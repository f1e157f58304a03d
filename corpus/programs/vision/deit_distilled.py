"""Train a distilled DeiT from timm with a hard-label teacher and repeated augmentation."""
# corpus: mode=training needs=timm

import timm
import torch
import torch.nn.functional as F
from timm.models.deit import VisionTransformerDistilled


def hard_distillation(outputs, teacher_logits, labels):
    class_logits, distilled_logits = outputs
    teacher_labels = teacher_logits.argmax(dim=1)
    return 0.5 * F.cross_entropy(class_logits, labels) + 0.5 * F.cross_entropy(
        distilled_logits, teacher_labels
    )


def repeated(images, labels, times):
    """The same images several times, each time flipped or shifted."""
    views = [images if i % 2 == 0 else images.flip(-1) for i in range(times)]
    return torch.cat([view.roll(i, dims=2) for i, view in enumerate(views)]), labels.repeat(times)


def main():
    torch.manual_seed(0)
    student = VisionTransformerDistilled(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=9, qkv_bias=True
    )
    student.set_distilled_training(True)
    teacher = timm.create_model("resnet10t", num_classes=9).eval().requires_grad_(False)
    compiled_student, compiled_teacher = torch.compile(student), torch.compile(teacher)
    compiled_loss = torch.compile(hard_distillation)
    optimizer = torch.optim.NAdam(student.parameters(), lr=1e-3)
    print("student tokens:", student.pos_embed.shape[1])
    for step in range(8):
        images, labels = repeated(torch.randn(3, 3, 32, 32), torch.randint(0, 9, (3,)), times=2)
        with torch.inference_mode():
            teacher_logits = compiled_teacher(images)
        loss = compiled_loss(compiled_student(images), teacher_logits.clone(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
