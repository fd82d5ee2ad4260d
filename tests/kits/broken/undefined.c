/* A source was forgotten. */
extern int nobody_has_this(void);
void *PyInit__k(void) { return (void *)(long)nobody_has_this(); }
