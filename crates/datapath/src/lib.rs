//! The switch: one turn from ingress to egress, lookup, coalescing, segmentation.
