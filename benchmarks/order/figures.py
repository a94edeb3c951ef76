"""The figures of the order benchmark."""

from benchmarks.harness.figures import Figure, Figures

_MIXED = "three sources by share: largest deviation in a batch of 128"
_PLANNED = "imagestrata plan: largest error of the rate at 0, 50, 150 and 300 ms"
_LARGE = "100 million images"
FIGURES = Figures(
    {
        1: Figure("stratified: largest deviation of a class from its share of a global batch", "<", 1.0, "images"),
        2: Figure("balanced: two images of a class in an epoch differ by at most", "<=", 1, "repeats"),
        3: Figure("balanced: images that came as often as due after each of 20 epochs", ">=", 1.0, "of all"),
        4: Figure("memory of an order of 100 million images of 1,000 classes", "<", 50, "MB", needs=_LARGE),
        5: Figure("rate of a stratified order over that of the usual one, fetch only, 0 ms", ">=", 0.95),
        6: Figure("places of an image in an epoch, 100 million images", "<", 1.0, "ms", needs=_LARGE),
        7: Figure("digits with a long tail: recall of the rarest three, balanced minus shuffled", "", None, "points"),
        8: Figure("the same: balanced minus WeightedRandomSampler of torch", "", None, "points"),
        9: Figure("the same: accuracy on all classes, balanced minus shuffled", "", None, "points"),
        10: Figure("the same: accuracy on all classes, stratified minus shuffled", "", None, "points"),
        11: Figure("seen: the batches of an image in 90 epochs of 100 million images", "<", 1.0, "ms", needs=_LARGE),
        12: Figure("replay: the images of a batch, of 100 million images", "<", 1.0, "ms", needs=_LARGE),
        13: Figure("random trainings whose last state replays every batch and finds images", ">=", 1.0, "of all"),
        14: Figure("decoded rate with crops by key over that with DALI's random numbers", ">=", 0.98),
        15: Figure("samples with equal pixels on other ranks, threads, batches, after a resume", ">=", 1.0, "of all"),
        16: Figure(f"{_MIXED}, ours", "<", 1.0, "images"),
        17: Figure(f"{_MIXED}, MosaicML streaming, stratified", "", None, "images"),
        18: Figure(f"{_MIXED}, LitData's CombinedStreamingDataset", "", None, "images"),
        19: Figure(f"{_MIXED}, torch's WeightedRandomSampler", "", None, "images"),
        20: Figure(f"{_PLANNED}, usual budget", "<=", 10, "%"),
        21: Figure(f"{_PLANNED}, 64 MB", "<=", 10, "%"),
    }
)
