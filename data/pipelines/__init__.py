"""Raw text at scale to corpora that training reads: Apache Beam pipelines (the extra `beam`)."""
