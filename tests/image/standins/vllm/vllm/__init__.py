SOURCE = "replaced"
