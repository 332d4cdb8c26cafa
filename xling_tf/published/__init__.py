"""The weights of the published universal-sentence-encoder-multilingual, in our own encoder."""
