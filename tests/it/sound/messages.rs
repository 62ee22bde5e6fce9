//! Each message goes out, once, whatever its neighbours do; each alert reaches a desk.
