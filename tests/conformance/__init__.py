"""One black-box suite for all renders: a rendered server as a process, asked over HTTP."""
