/* A cuDNN that has a version and a handle. */
static char memory[4096];
int cudnnCreate(void **handle) { *handle = memory; return 0; }
unsigned long cudnnGetVersion(void) { return 92400; }
unsigned long cudnnGetCudartVersion(void) { return 13000; }
const char *cudnnGetErrorString(int code) { return "stand-in"; }
void cudnnGetLastErrorString(char *text, unsigned long size) { if (size) text[0] = 0; }
