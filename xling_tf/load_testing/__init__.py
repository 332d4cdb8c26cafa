"""Load on a model server and faults around it, measured from outside its process."""
