/* Python would look for PyInit__k. */
void *PyInit__other(void) { return 0; }
