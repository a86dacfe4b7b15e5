//! Memory for the daemons. They read large lists of small objects on several threads and keep little of them: the system's
//! allocators answer that with an arena for each thread that never shrinks (glibc; twice the memory), or with one lock for
//! all (musl, which our images are built with). `.cargo/config.toml` says how this one is set up.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
