"""The codec in the browser: a folder of files that computes where it is opened, and uploads nothing."""
