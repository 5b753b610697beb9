"""Time the stock kernel, ours and FlashMLA on the same inputs, against what the card can do at best."""
