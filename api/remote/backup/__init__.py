"""`fabricscope backup`: asks the running service for an archive of all that it keeps."""
