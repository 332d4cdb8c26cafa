"""Apache Beam pipelines that make corpora of raw text at scale (the extra `beam`)."""
