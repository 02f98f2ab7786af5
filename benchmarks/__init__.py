"""Time and memory beside what a user would pick instead; ratios within one run."""
