//! Content as objects: how large content is cut, how stored bytes are framed, and how
//! content is read back. The name of an object depends on none of it.

pub mod chunk;
pub mod codec;
pub mod content;
