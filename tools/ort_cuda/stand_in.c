/* CUDA's runtime without a GPU: memory of the host, copies that copy, kernels that do not run.
   It answers as an A100 does. STAND_IN_LOG=1 prints each cudaMalloc. */
#include <driver_types.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
static char dummy[4096];
#define OK return 0
static void *al(size_t n){ void*p=NULL; if(posix_memalign(&p,256,n?n:256)) return NULL; return p; }
static int verbose(void){ return getenv("STAND_IN_LOG")!=NULL; }
int cudaMalloc(void**p,size_t n){ *p=al(n); if(verbose()) fprintf(stderr,"cudaMalloc %zu\n",n); return *p?0:2; }
int cudaFree(void*p){ free(p); OK; }
int cudaMallocFromPoolAsync(void**p,size_t n,void*a,void*b){ *p=al(n); OK; }
int cudaFreeAsync(void*p,void*s){ free(p); OK; }
int cudaMemPoolCreate(void**p,void*q){ *p=dummy; OK; }
int cudaMallocHost(void**p,size_t n){ *p=al(n); OK; }
int cudaHostAlloc(void**p,size_t n,unsigned f){ *p=al(n); OK; }
int cudaFreeHost(void*p){ free(p); OK; }
int cudaMemcpy(void*d,const void*s,size_t n,int k){ memmove(d,s,n); OK; }
int cudaMemcpyAsync(void*d,const void*s,size_t n,int k,void*st){ memmove(d,s,n); OK; }
int cudaMemcpy2DAsync(void*d,size_t dp,const void*s,size_t sp,size_t w,size_t h,int k,void*st){ for(size_t i=0;i<h;i++) memmove((char*)d+i*dp,(const char*)s+i*sp,w); OK; }
int cudaMemset(void*d,int v,size_t n){ memset(d,v,n); OK; }
int cudaMemsetAsync(void*d,int v,size_t n,void*s){ memset(d,v,n); OK; }
int cudaMemGetInfo(size_t*f,size_t*t){ *f=79ull<<30; *t=80ull<<30; OK; }
int cudaGetDeviceCount(int*n){ *n=1; OK; }
int cudaGetDevice(int*n){ *n=0; OK; }
int cudaGetDeviceProperties(struct cudaDeviceProp*p,int d){ memset(p, 0, sizeof *p);
  strcpy(p->name,"Stand-in"); p->totalGlobalMem=80ull<<30; p->sharedMemPerBlock=49152; p->regsPerBlock=65536; p->warpSize=32; p->maxThreadsPerBlock=1024; p->maxThreadsDim[0]=p->maxThreadsDim[1]=1024; p->maxThreadsDim[2]=64; p->maxGridSize[0]=2147483647; p->maxGridSize[1]=p->maxGridSize[2]=65535; p->major=8; p->minor=0; p->multiProcessorCount=108; p->maxThreadsPerMultiProcessor=2048; p->sharedMemPerMultiprocessor=167936; p->sharedMemPerBlockOptin=166912; p->regsPerMultiprocessor=65536; p->l2CacheSize=41943040; p->totalConstMem=65536; p->maxBlocksPerMultiProcessor=32; OK; }
int cudaDeviceGetAttribute(int*v,int a,int d){ switch(a){ case 1:*v=1024;break; case 2:case 3:*v=1024;break; case 4:*v=64;break; case 5:*v=2147483647;break; case 6:case 7:*v=65535;break; case 8:*v=49152;break; case 10:*v=32;break; case 12:*v=65536;break; case 16:*v=108;break; case 38:*v=41943040;break; case 39:*v=2048;break; case 75:*v=8;break; case 76:*v=0;break; case 81:*v=167936;break; case 82:*v=65536;break; case 97:*v=166912;break; default:*v=1;} OK; }
int cudaStreamCreate(void**s){ *s=dummy+64; OK; }
int cudaStreamCreateWithFlags(void**s,unsigned f){ *s=dummy+64; OK; }
int cudaEventCreate(void**s){ *s=dummy+128; OK; }
int cudaEventCreateWithFlags(void**s,unsigned f){ *s=dummy+128; OK; }
int cudaEventElapsedTime(float*ms,void*a,void*b){ *ms=1; OK; }
const char* cudaGetErrorString(int e){ return "none"; }
const char* cudaGetErrorName(int e){ return "none"; }
const char* cublasGetStatusString(int e){ return "none"; }
const char* cublasGetStatusName(int e){ return "none"; }
void** __cudaRegisterFatBinary(void*b){ static void*h[8]; return h; }
unsigned __cudaPushCallConfiguration(void){ return 1; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*n,const void*f,int b,size_t s,unsigned fl){ *n=4; OK; }
int cudaFuncGetAttributes(struct cudaFuncAttributes*a,const void*f){ memset(a,0,sizeof *a); a->maxThreadsPerBlock=1024; a->ptxVersion=80; a->binaryVersion=80; OK; }
int cudaPointerGetAttributes(struct cudaPointerAttributes*a,const void*p){ memset(a,0,sizeof *a); a->type=cudaMemoryTypeDevice; a->devicePointer=(void*)p; OK; }
int cudaDriverGetVersion(int*v){ *v=13000; OK; }
int cudaRuntimeGetVersion(int*v){ *v=13000; OK; }
int cudaStreamIsCapturing(void*s,int*v){ *v=0; OK; }
int cudaLaunchHostFunc(void*s,void(*f)(void*),void*d){ f(d); OK; }
int cudaGetDriverEntryPointByVersion(const char*n,void**f,unsigned v,unsigned long long fl,int*q){ *f=dummy; if(q)*q=0; OK; }
int cublasCreate_v2(void**h){ *h=dummy+256; OK; }
int cublasLtCreate(void**h){ *h=dummy+320; OK; }
int cublasGetMathMode(void*h,int*m){ *m=0; OK; }
int cublasLtMatmulDescCreate(void**h,int a,int b){ *h=dummy+512; OK; }
int cublasLtMatmulPreferenceCreate(void**h){ *h=dummy+640; OK; }
int cublasLtMatrixLayoutCreate(void**h){ *h=dummy+768; OK; }
int cublasLtMatrixTransformDescCreate(void**h){ *h=dummy+896; OK; }
int cublasLtMatmulAlgoGetHeuristic(void*a,void*b,void*c,void*d,void*e,void*f,void*g,int n,void*r,int*got){ *got=1; OK; }
