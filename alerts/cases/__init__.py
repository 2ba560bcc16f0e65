"""Cases: windows with what an operator said about their verdict, to be judged again. Pure."""
